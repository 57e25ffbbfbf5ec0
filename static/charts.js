/* A chart draws its table twin: the first column holds times, the next two (`data-series`) a series each; `data-limit` is a line.
   Colors come from the legend. */
(() => {
  const color = (name) => getComputedStyle(document.querySelector(name)).color;
  const number = (text) => (text.trim() === "" ? null : Number(text));
  const clock = (far) => new Intl.DateTimeFormat("en-GB", {
    ...(far ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" }),
    timeZone: document.documentElement.dataset.zone,
  });

  const drawOne = (host) => {
    const rows = [...document.querySelectorAll(`#${host.dataset.chart} tbody tr`)];
    if (!window.uPlot || rows.length === 0) return;
    const times = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
    const columns = Array.from({ length: Number(host.dataset.series ?? 2) }, (_, n) => n + 1);
    const data = [times, ...columns.map((cell) => rows.map((row) => number(row.cells[cell].textContent)))];
    const { limit } = host.dataset;
    if (limit) data.push(rows.map(() => Number(limit)));
    const format = clock(times.at(-1) - times[0] > 86_400);
    const axis = { stroke: color(".legend"), font: "11px Inter, sans-serif", grid: { stroke: color(".grid-ink"), width: 1 }, ticks: { show: false } };
    const line = (name, width, dash) => ({ stroke: color(name), width, dash, points: { show: false } });
    const marks = [...document.querySelectorAll("#gpu-marks time")].map((time) => Date.parse(time.dateTime) / 1000);
    host.replaceChildren();
    new uPlot({
      width: host.clientWidth - 8, height: host.clientHeight - 6, legend: { show: false }, cursor: { y: false },
      scales: { y: { range: limit ? [0, 105] : (plot, least, most) => [0, Math.max(most, 1) * 1.05] } },
      axes: [
        { ...axis, size: 22, gap: 3, space: 60, values: (plot, ticks) => ticks.map((tick) => format.format(tick * 1000)) },
        { ...axis, size: limit ? 30 : 52, gap: 3 },
      ],
      series: [{}, line(".swatch-1", 1.5), line(".swatch-2", 1), line(".swatch-3", 1, [3, 3])].slice(0, data.length),
      hooks: {
        draw: [(plot) => marks.filter((at) => at >= times[0] && at <= times.at(-1)).forEach((at) => {
          const x = plot.valToPos(at, "x", true);
          plot.ctx.strokeStyle = axis.stroke;
          plot.ctx.beginPath();
          plot.ctx.moveTo(x, plot.bbox.top);
          plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
          plot.ctx.stroke();
        })],
      },
    }, data, host);
  };
  const draw = () => document.querySelectorAll("[data-chart]").forEach(drawOne);

  document.fonts.load("11px Inter").then(draw, draw);
  document.addEventListener("htmx:afterSettle", draw);
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("resize", draw);
})();
