// What stands between a host and a view (SEP-1865, "Sandbox proxy"): it holds the page in a frame
// that inherits its policy, and passes on what both say.

const view = document.createElement("iframe");
view.id = "view";
view.title = "The view";
view.sandbox = "allow-scripts allow-same-origin";
document.body.append(view);

window.addEventListener("message", ({ source, data }) => {
  if (source === window.parent) {
    if (data.method === "ui/notifications/sandbox-resource-ready") view.srcdoc = data.params.html;
    else view.contentWindow.postMessage(data, "*");
  } else if (source === view.contentWindow && !data.method?.startsWith("ui/notifications/sandbox-")) {
    window.parent.postMessage(data, "*");
  }
});
window.parent.postMessage(
  { jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} },
  "*",
);
