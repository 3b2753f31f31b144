"use strict";

// Draws the tables of the page as charts, from the data in the tables alone. Without this file, or
// without the library, only the tables are shown.
(function () {
    const KINDS = {
        stack: { type: "bar", stacked: true, indexAxis: "x" },
        bars: { type: "bar", stacked: true, indexAxis: "y" },
        line: { type: "line", stacked: false, indexAxis: "x" },
    };
    const POINTS = ["circle", "triangle", "rect"];
    const DASHES = [[], [6, 4], [2, 3]];
    const charts = [];

    function rowsOf(table) {
        return Array.from(table.tBodies[0].rows);
    }

    function valueOf(row, column) {
        const value = row.cells[column].dataset.value;
        return value === undefined ? null : Number(value);
    }

    function isRightToLeft() {
        return document.documentElement.dir === "rtl";
    }

    function color(holder, name) {
        const style = getComputedStyle(holder);
        const found = style.getPropertyValue("--mcp-chart-" + name).trim();
        // A canvas has no color of its own.
        return found === "currentcolor" ? style.color : found;
    }

    function seriesOf(holder, table, kind) {
        const heads = table.tHead.rows[0].cells;
        return holder.dataset.mcpColumns.split(" ").map(Number).map(function (column, number) {
            const shade = color(holder, heads[column].dataset.mcpColor);
            return {
                label: heads[column].textContent.trim(),
                data: rowsOf(table).map((row) => valueOf(row, column)),
                backgroundColor: shade,
                borderColor: kind.type === "bar" ? color(holder, "ground") : shade,
                borderWidth: kind.type === "bar" ? 1 : 2,
                // Lines can be distinguished without color as well.
                borderDash: kind.type === "line" ? DASHES[number] : [],
                pointStyle: POINTS[number],
                spanGaps: false,
            };
        });
    }

    function axis(holder, isStacked, isCounted) {
        const unit = holder.dataset.mcpUnit;
        return {
            stacked: isStacked,
            beginAtZero: isCounted,
            grid: { color: color(holder, "grid") },
            border: { color: color(holder, "grid") },
            ticks: isCounted
                ? { color: color(holder, "text"), precision: unit ? undefined : 0 }
                : { color: color(holder, "text"), autoSkip: true, maxRotation: 0 },
            title: { display: isCounted && Boolean(unit), text: unit, color: color(holder, "text") },
        };
    }

    function optionsOf(holder, kind) {
        const rightToLeft = isRightToLeft();
        const isAcross = kind.indexAxis === "x";
        const x = axis(holder, kind.stacked, !isAcross);
        const y = axis(holder, kind.stacked, isAcross);
        x.reverse = rightToLeft;
        y.position = rightToLeft ? "right" : "left";
        if (!isAcross) {
            y.ticks.autoSkip = false;
        }
        const words = { rtl: rightToLeft, textDirection: rightToLeft ? "rtl" : "ltr" };
        return {
            indexAxis: kind.indexAxis,
            locale: document.documentElement.lang || undefined,
            responsive: true,
            maintainAspectRatio: false,
            // Animation does not make the charts easier to read.
            animation: false,
            interaction: { mode: "index", intersect: false, axis: kind.indexAxis },
            scales: { x: x, y: y },
            plugins: {
                legend: {
                    ...words,
                    align: "start",
                    labels: { color: color(holder, "text"), usePointStyle: kind.type === "line" },
                },
                tooltip: words,
            },
        };
    }

    function draw(holder) {
        const table = document.getElementById(holder.dataset.mcpTable);
        const kind = KINDS[holder.dataset.mcpChart];
        const canvas = document.createElement("canvas");
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", holder.dataset.mcpLabel);
        holder.replaceChildren(canvas);
        if (kind.indexAxis === "y") {
            // The height fits the number of bars, one for each component.
            holder.style.blockSize = 6 + 2 * rowsOf(table).length + "rem";
        }
        charts.push(new Chart(canvas, {
            type: kind.type,
            data: {
                labels: rowsOf(table).map((row) => row.cells[0].textContent.trim()),
                datasets: seriesOf(holder, table, kind),
            },
            options: optionsOf(holder, kind),
        }));
    }

    function drawAll() {
        charts.splice(0).forEach((chart) => chart.destroy());
        document.querySelectorAll("[data-mcp-chart]").forEach(draw);
    }

    function start() {
        if (typeof Chart === "undefined") {
            return;
        }
        drawAll();
        document.querySelectorAll("[data-mcp-fold]").forEach((one) => one.removeAttribute("open"));
        // Colors are read when drawing, so draw again when the theme changes.
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
        new MutationObserver(drawAll).observe(document.documentElement, {
            attributeFilter: ["data-theme", "class"],
        });
    }

    document.addEventListener("DOMContentLoaded", start);
})();
