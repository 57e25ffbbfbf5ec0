/* The fleet map: draws every GPU as one cell of a canvas, by cluster, rack and node. Colors come from the legend. */
(() => {
  const host = document.getElementById("fleet");
  if (!host) return;
  const canvas = host.querySelector("canvas"), ink = canvas.getContext("2d"), line = document.getElementById("fleet-cell");
  const HEAD = 26, LABEL = 16, GAP = 14, NAME = 116, LINES = 8; // pixels, and nodes of a rack above each other
  const ZERO = "00000000-0000-0000-0000-000000000000", REFETCH_MS = 15_000;
  let data = JSON.parse(document.getElementById("fleet-data").textContent), cells, texts, at = 0, by = host.dataset.by;

  const tint = (selector) => getComputedStyle(document.querySelector(selector)).backgroundColor;
  const read = () => {
    const heat = Array.from({ length: 9 }, (_, step) => tint(`.fleet-key .heat-${step}`));
    const hues = Array.from({ length: 8 }, (_, hue) => tint(`#fleet-samples .ws-h${hue}`));
    const states = Object.fromEntries(["free", "held", "draining", "unusable", "sick", "unknown"].map((name) => [name, tint(`#fleet-samples .fleet-${name}`)]));
    const style = getComputedStyle(line);
    return { heat, hues, states, ink: style.color, late: getComputedStyle(document.getElementById("fleet-samples")).color, font: style.fontFamily };
  };

  const fill = (paint, n) => {
    const state = data.states[data.state[n]][0];
    if (by === "holder" && data.holder[n] >= 0) return paint.hues[data.holders[data.holder[n]][2]];
    if (by === "holder") return paint.states[state === "draining" ? "held" : state === "sick" ? "unusable" : state];
    if (by === "health") return paint.states[state];
    const value = data[by][n];
    return value === null ? paint.states.unknown : paint.heat[data.scales[by].filter((least) => value >= least).length];
  };
  const is_idle = (n) => data.states[data.state[n]][0] === "held" && data.use[n] !== null && data.use[n] < data.idle;

  /* Places each cell: racks flow in lines as words do, and a rack of many nodes has several columns. */
  const place = (width) => {
    const total = data.index.length, step = total > 4000 ? 9 : total > 800 ? 12 : total > 400 ? 16 : 22, racks = [];
    const margin = total > 400 ? 0 : NAME; // a small fleet has room for the names of its nodes
    let n = 0;
    for (const [cluster, rack, node, , count] of data.nodes) {
      const last = racks.at(-1), is_same = last && last.cluster === cluster && last.rack === rack;
      if (!is_same) racks.push({ cluster, rack, nodes: [] });
      racks.at(-1).nodes.push({ node, first: n, count });
      n += count;
    }
    cells = { x: new Float32Array(total), y: new Float32Array(total), step };
    texts = [];
    let x = 0, y = 0, tall = 0, cluster = null;
    for (const rack of racks) {
      if (rack.cluster !== cluster) {
        y += tall + (cluster === null ? 0 : GAP); x = 0; tall = 0; cluster = rack.cluster;
        texts.push({ text: cluster, x: 0, y: y + 14, strong: true });
        y += HEAD;
      }
      for (let from = 0; from < rack.nodes.length; from += LINES) {
        const some = rack.nodes.slice(from, from + LINES), wide = margin + Math.max(...some.map((node) => node.count)) * step;
        if (x > 0 && x + wide > width) { x = 0; y += tall + GAP; tall = 0; }
        if (from === 0) texts.push({ text: rack.rack, x, y: y + 10, room: Math.max(wide, 60) });
        some.forEach((node, row) => {
          if (margin) texts.push({ text: node.node, x, y: y + LABEL + row * step + 14, room: margin - 8 });
          for (let cell = 0; cell < node.count; cell++) {
            cells.x[node.first + cell] = x + margin + cell * step;
            cells.y[node.first + cell] = y + LABEL + row * step;
          }
        });
        x += Math.max(wide, 60) + GAP; tall = Math.max(tall, LABEL + some.length * step);
      }
    }
    return y + tall + 4;
  };

  const draw = () => {
    const width = host.clientWidth, height = place(width), scale = window.devicePixelRatio || 1, paint = read(), size = cells.step - 2;
    canvas.width = width * scale; canvas.height = height * scale;
    canvas.setAttribute("height", canvas.height);
    ink.setTransform(scale, 0, 0, scale, 0, 0);
    for (const { text, x, y, strong, room } of texts) {
      ink.fillStyle = paint.ink;
      ink.font = `${strong ? 620 : 450} ${strong ? 13 : 11}px ${paint.font}`;
      ink.fillText(text, x, y, room);
    }
    for (let n = 0; n < data.index.length; n++) {
      ink.fillStyle = fill(paint, n);
      ink.fillRect(cells.x[n], cells.y[n], size, size);
      if (data.states[data.state[n]][0] === "sick" && by !== "health") { ink.fillStyle = paint.states.sick; ink.fillRect(cells.x[n], cells.y[n], size, 3); }
      if (by === "use" && is_idle(n)) { ink.fillStyle = paint.late; ink.fillRect(cells.x[n], cells.y[n] + size - 3, size, 3); }
    }
    if (document.activeElement === canvas) {
      ink.strokeStyle = paint.ink; ink.lineWidth = 2;
      ink.strokeRect(cells.x[at] - 2, cells.y[at] - 2, size + 4, size + 4);
    }
  };

  const node_of = (n) => { let first = 0; return data.nodes.find((node) => { first += node[4]; return n < first; }); };
  const tell = (n) => {
    if (n === null || !data.index.length) return;
    const [cluster, rack, node, shape] = node_of(n), holder = data.holders[data.holder[n]];
    const measured = [["temperature", "°C"], ["use", "%"], ["power", "W"]].filter(([name]) => data[name][n] !== null);
    line.textContent = [
      `${node} GPU ${data.index[n]}, ${shape}, ${cluster} ${rack}`,
      data.states[data.state[n]][1] + (holder ? ` by ${holder[0]} of ${holder[1]}` : "") + (is_idle(n) ? ", idle" : ""),
      measured.length ? measured.map(([name, unit]) => `${data[name][n]} ${unit}`).join(", ") : "no reading that you may see",
    ].join(". ") + ".";
  };
  const hit = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    for (let n = 0; n < cells.x.length; n++) {
      if (x >= cells.x[n] && x < cells.x[n] + cells.step && y >= cells.y[n] && y < cells.y[n] + cells.step) return n;
    }
    return null;
  };
  const open = (n) => {
    const id = data.ids.slice(32 * n, 32 * n + 32).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    window.location.assign(data.gpu_url.replace(ZERO, id));
  };
  /* The nearest cell above (-1) or below (1). */
  const beside = (way) => {
    let best = at, least = Infinity;
    for (let n = 0; n < cells.x.length; n++) {
      const down = (cells.y[n] - cells.y[at]) * way;
      const far = down * 100 + Math.abs(cells.x[n] - cells.x[at]);
      if (down > 0 && far < least) { best = n; least = far; }
    }
    return best;
  };
  const KEYS = {
    ArrowLeft: () => Math.max(0, at - 1), ArrowRight: () => Math.min(data.index.length - 1, at + 1),
    ArrowUp: () => beside(-1), ArrowDown: () => beside(1), Home: () => 0, End: () => data.index.length - 1,
  };

  canvas.addEventListener("pointermove", (event) => tell(hit(event)));
  canvas.addEventListener("click", (event) => { const n = hit(event); if (n !== null) open(n); });
  canvas.addEventListener("focus", () => { draw(); tell(at); });
  canvas.addEventListener("blur", draw);
  canvas.addEventListener("keydown", (event) => {
    if (!data.index.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") { open(at); return; }
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    at = KEYS[event.key]();
    draw();
    tell(at);
    const y = canvas.getBoundingClientRect().top + cells.y[at];
    if (y < 60 || y > window.innerHeight - 60) window.scrollBy({ top: y - window.innerHeight / 2 });
  });

  const show = (name) => {
    by = name;
    document.querySelectorAll("[data-map-by]").forEach((key) => { key.hidden = key.dataset.mapBy !== name; });
    document.querySelectorAll("#fleet-tabs a").forEach((link) => {
      if (new URL(link.href).searchParams.get("by") === name) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
    draw();
  };
  document.getElementById("fleet-tabs").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    window.history.replaceState(null, "", link.href);
    show(new URL(link.href).searchParams.get("by"));
  });

  const fetch_cells = async () => {
    if (document.hidden) return;
    const answer = await fetch(host.dataset.url, { credentials: "same-origin" }).catch(() => null);
    const is_good = Boolean(answer && answer.ok && !answer.redirected);
    host.classList.toggle("is-stale", !is_good);
    document.getElementById("fleet-stale").hidden = is_good;
    if (!is_good) return;
    data = await answer.json();
    at = Math.min(at, Math.max(0, data.index.length - 1));
    draw();
  };
  show(by);
  performance.mark("fleet-drawn");
  setInterval(fetch_cells, REFETCH_MS);
  new ResizeObserver(draw).observe(host);
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
