"use strict";

// A button beside each text that is there to be copied. Without this file it is marked by hand.
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
        // Said aloud when it changes, for whoever does not see it.
        button.setAttribute("aria-live", "polite");
        if (text.id) {
            button.setAttribute("aria-describedby", text.id);
        }
        text.after(button);
    }

    document.addEventListener("DOMContentLoaded", function () {
        // Browsers offer the clipboard to pages of a secure origin alone.
        if (navigator.clipboard) {
            document.querySelectorAll("[data-mcp-copy]").forEach(withButton);
        }
    });
})();
