"use strict";

// Adds a copy button after each text to be copied. Without JavaScript, users select the text.
(function () {
    function withButton(text) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "button mcp-copy";
        button.textContent = text.dataset.mcpCopyLabel;
        button.addEventListener("click", function () {
            navigator.clipboard.writeText(text.textContent).then(function () {
                button.textContent = text.dataset.mcpCopiedLabel;
            }, function () {
                window.getSelection().selectAllChildren(text);
            });
        });
        // Screen readers announce the changed text.
        button.setAttribute("aria-live", "polite");
        if (text.id) {
            button.setAttribute("aria-describedby", text.id);
        }
        text.after(button);
    }

    document.addEventListener("DOMContentLoaded", function () {
        // Browsers provide the clipboard to secure origins only.
        if (navigator.clipboard) {
            document.querySelectorAll("[data-mcp-copy]").forEach(withButton);
        }
    });
})();
