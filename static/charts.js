/* A chart draws its table twin: the first column holds times, each further one that the legend names a series. Colors and dashes come from
   the legend; a limit is its last entry. Dragging zooms in, a double click or the button goes back; a zoomed chart keeps its place. */
(() => {
  const DASHES = [[], [6, 3], [2, 3]], PER_DASH = 4; // more series than colors that tell them apart
  const zooms = {};
  const color = (name) => getComputedStyle(document.querySelector(name)).color;
  const number = (text) => (text.trim() === "" ? null : Number(text));
  const clock = (far) => new Intl.DateTimeFormat("en-GB", {
    ...(far ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" }),
    timeZone: document.documentElement.dataset.zone,
  });

  // A value may be missing now and then; where there is none for longer the line breaks, since nobody knows what was there.
  const gaps_over = (longest_s) => (plot, series, first, last) => {
    const gaps = [], [times, values] = [plot.data[0], plot.data[series]];
    for (let n = first, before = null; n <= last; n++) {
      if (values[n] === null) continue;
      if (before !== null && times[n] - before > longest_s) gaps.push([before, times[n]].map((at) => Math.round(plot.valToPos(at, "x", true))));
      before = times[n];
    }
    return gaps;
  };
  const lines = (swatches, longest_s) => swatches.map((swatch, n) => {
    const style = getComputedStyle(swatch), is_limit = style.borderTopStyle === "dotted";
    return {
      stroke: style.color, width: is_limit || (n > 0 && swatches.length <= 3) ? 1 : 1.5,
      dash: is_limit ? [3, 3] : DASHES[Math.floor(n / PER_DASH)], points: { show: false }, spanGaps: is_limit, gaps: gaps_over(longest_s),
    };
  });
  const marks_of = (host) => [...document.querySelectorAll(`#${host.dataset.marks} li`)].map((item) => ({
    at: Date.parse(item.querySelector("time").dateTime) / 1000, stroke: getComputedStyle(item.querySelector("svg")).color,
  }));
  const draw_marks = (plot, marks) => marks.filter(({ at }) => at >= plot.scales.x.min && at <= plot.scales.x.max).forEach(({ at, stroke }) => {
    const x = plot.valToPos(at, "x", true);
    plot.ctx.strokeStyle = stroke;
    plot.ctx.lineWidth = window.devicePixelRatio;
    plot.ctx.setLineDash([]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, plot.bbox.top);
    plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
    plot.ctx.stroke();
  });
  const tell_zoom = (host, zoom) => {
    const reset = document.querySelector(`[data-zoom-of="${host.dataset.chart}"]`);
    if (!reset) return;
    reset.hidden = !zoom;
    reset.onclick = () => { delete zooms[host.dataset.chart]; drawOne(host); };
  };

  const drawOne = (host) => {
    const rows = [...document.querySelectorAll(`#${host.dataset.chart} tbody tr`)];
    if (!window.uPlot || rows.length === 0) return;
    const times = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000), limit = Number(host.dataset.limit);
    const swatches = [...host.parentElement.querySelectorAll(".legend .swatch")], count = swatches.length - (host.dataset.limit ? 1 : 0);
    const data = [times, ...Array.from({ length: count }, (_, n) => rows.map((row) => number(row.cells[n + 1].textContent)))];
    if (host.dataset.limit) data.push(rows.map(() => limit));
    const format = clock(times.at(-1) - times[0] > 86_400), most = Number(host.dataset.most);
    const axis = { stroke: color(".legend"), font: "11px Inter, sans-serif", grid: { stroke: color(".grid-ink"), width: 1 }, ticks: { show: false } };
    const marks = marks_of(host), whole = { min: times[0], max: times.at(-1) }, zoom = zooms[host.dataset.chart];
    host.replaceChildren();
    new uPlot({
      width: host.clientWidth - 8, height: host.clientHeight - 6, legend: { show: false }, cursor: { y: false },
      scales: { y: { range: most ? [0, most] : (_, __, max) => [0, Math.max(1, (max || 0) * 1.05)] } },
      axes: [
        { ...axis, size: 22, gap: 3, space: 60, values: (_, ticks) => ticks.map((tick) => format.format(tick * 1000)) },
        { ...axis, size: most ? 30 : 52, gap: 3 },
      ],
      series: [{}, ...lines(swatches, Number(host.dataset.longest) || Infinity)],
      hooks: {
        draw: [(plot) => draw_marks(plot, marks)],
        ready: [(plot) => { if (zoom) plot.setScale("x", zoom); tell_zoom(host, zoom); }],
        setScale: [(plot, key) => {
          if (key !== "x" || plot.status !== 1) return;
          const { min, max } = plot.scales.x, is_whole = min <= whole.min && max >= whole.max;
          if (is_whole) delete zooms[host.dataset.chart];
          else zooms[host.dataset.chart] = { min, max };
          tell_zoom(host, !is_whole);
        }],
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
