/* Between two answers of the server this updates what time alone changes: how long something takes yet, the line of now, and how much
   of a box is used. The server's clock counts; the words are those of core/pages/words.py. */
(() => {
  const clock = document.getElementById("clock");
  if (!clock) return;
  const STEP_MS = 5_000, MINUTE_MS = 60_000, HOUR_MIN = 60, DAY_MIN = 1_440, NARROWEST = 0.25;
  const ahead = Date.parse(clock.dateTime) - Date.now();
  const nowMs = () => Date.now() + ahead;
  const clockTime = new Intl.DateTimeFormat("en-GB", { timeStyle: "short", timeZone: document.documentElement.dataset.zone });

  /* In whole minutes of the clock, from a day on in days and hours; empty under a minute. */
  const span = (at, now) => {
    if (Math.abs(at - now) < MINUTE_MS) return "";
    const minutes = Math.abs(Math.floor(at / MINUTE_MS) - Math.floor(now / MINUTE_MS));
    const parts = [[Math.floor(minutes / DAY_MIN), "d"], [Math.floor((minutes % DAY_MIN) / HOUR_MIN), "h"]];
    if (minutes < DAY_MIN) parts.push([minutes % HOUR_MIN, "min"]);
    const told = parts.filter(([count]) => count);
    return told.map(([count, unit], place) => `${unit === "min" && place ? String(count).padStart(2, "0") : count} ${unit}`).join(" ");
  };
  const relative = (at, now) => {
    const length = span(at, now);
    if (!length) return "now";
    return at > now ? `in ${length}` : `${length} ago`;
  };
  const WORDS = {
    ago: relative,
    left: (at, now) => (at <= now ? "over" : `${span(at, now) || "under 1 min"} left`),
    starts: (at, now) => `Starts ${at - now < MINUTE_MS ? "now" : relative(at, now)}`,
  };

  const percentOf = (axis, now) => {
    const [start, end] = [Date.parse(axis.dataset.start), Date.parse(axis.dataset.end)];
    return ((now - start) / (end - start)) * 100;
  };
  const put = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, `${value.toFixed(2)}%`));

  const goOn = () => {
    const now = nowMs();
    document.querySelectorAll("time[data-tick]").forEach((time) => {
      const text = WORDS[time.dataset.tick](Date.parse(time.dateTime), now);
      if (time.textContent !== text) time.textContent = text;
    });
    document.querySelectorAll("svg.defs[data-start]").forEach((defs) => {
      const x = percentOf(defs, now), name = defs.id.replace(/-defs$/, "");
      if (x > 100) return; // the next answer brings another axis
      defs.querySelectorAll(".now-line").forEach((line) => put(line, { x1: x, x2: x }));
      document.querySelectorAll(`svg.strip:has(use[href="#${name}-grid"]) .goes-on`).forEach((used) => {
        const from = parseFloat(used.getAttribute("x")), frame = used.parentElement.querySelector(".box-frame");
        const most = frame ? parseFloat(frame.getAttribute("width")) : Infinity;
        put(used, { width: Math.max(Math.min(x - from, most), NARROWEST) });
      });
    });
    document.querySelectorAll("svg.axis[data-start] .now-pill").forEach((pill) => {
      const x = percentOf(pill.ownerSVGElement, now);
      if (x > 100) return;
      put(pill, { x });
      pill.querySelector("text").textContent = clockTime.format(now);
    });
  };
  setInterval(() => { if (!document.hidden) goOn(); }, STEP_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) goOn(); });
})();
