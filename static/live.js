/* Live: the socket says only that something changed, and each fragment fetches itself anew: then, and once a minute; without a socket
   each quarter of a minute.
   #live says which it is, and when what is shown is no longer fresh. */
(() => {
  const live = document.getElementById("live");
  if (!live?.hasAttribute("ws-connect")) return;
  const APART_MS = 1000, ASLEEP_MS = 30_000, PATIENCE_MS = 5_000, POLL_MS = 15_000, ANYWAY_MS = 60_000, STALE_MS = 60_000, RECONNECT_MS = 8_000;
  const SIGNED_OUT = 4401, FOREIGN = 4403;
  const RECONNECTED_BY_HTMX = [1006, 1011, 1012, 1013];

  let lostAt = Date.now(); // null while the socket is open
  let wasOpen = false;
  let hiddenAt = null;
  let firedAllAt = Date.now();
  let freshAt = Date.now();
  let askedAt = null; // the first request since then that has not brought anything
  let failureCount = 0;
  let tries = 0;

  const firedAt = new Map();
  const later = new Set();
  let burst = 0; // what is fired together: an element that listens to several of it is fetched once
  const fire = (topic) => {
    const wait = (firedAt.get(topic) ?? -APART_MS) + APART_MS - performance.now();
    if (wait > 0) {
      if (later.has(topic)) return;
      later.add(topic);
      setTimeout(() => { later.delete(topic); fireEach([topic]); }, wait);
      return;
    }
    firedAt.set(topic, performance.now());
    htmx.trigger(document.body, `egs:${topic}`, { burst });
  };
  const fireEach = (topics) => {
    burst += 1;
    topics.forEach(fire);
  };
  const topicsOf = (element) => [...(element.getAttribute("hx-trigger") ?? "").matchAll(/egs:([a-z]+)/g)].map((match) => match[1]);
  const fireAll = () => {
    firedAllAt = Date.now();
    fireEach(new Set([...document.querySelectorAll("[hx-trigger]")].flatMap(topicsOf)));
  };

  const clock = (at) => new Intl.DateTimeFormat("en-GB", { timeStyle: "short", timeZone: document.documentElement.dataset.zone }).format(at);
  const isStale = () => failureCount >= 2 || (askedAt !== null && Date.now() - askedAt > STALE_MS);
  const isPolling = () => lostAt !== null && Date.now() - lostAt > PATIENCE_MS;
  const staleSince = () => (lostAt === null ? askedAt ?? freshAt : Math.max(freshAt, lostAt));
  const show = () => {
    const stale = isStale();
    const text = stale ? `Stale since ${clock(staleSince())}` : isPolling() ? "Polling" : wasOpen ? "Live" : live.textContent.trim();
    live.classList.toggle("is-stale", stale);
    live.classList.toggle("is-paused", !stale && isPolling());
    live.classList.toggle("is-off", !stale && !isPolling() && !wasOpen);
    const word = live.firstElementChild;
    if (word.textContent !== text) word.textContent = text; // said aloud only when it changes
    const notice = document.getElementById("stale");
    notice.querySelector("[data-as-of]").textContent = clock(staleSince());
    notice.hidden = !stale;
  };

  const delay = (count) => Math.min(1000 * 2 ** count, RECONNECT_MS) * (0.5 + Math.random() / 2);
  htmx.config.wsReconnectDelay = delay;

  live.addEventListener("htmx:wsBeforeMessage", (event) => {
    event.preventDefault(); // never swapped in
    fireEach(JSON.parse(event.detail.message).topics);
  });
  live.addEventListener("htmx:wsOpen", () => {
    if (wasOpen || Date.now() - lostAt > PATIENCE_MS) fireAll(); // it may have missed something
    [wasOpen, lostAt, tries] = [true, null, 0];
    show();
  });
  live.addEventListener("htmx:wsClose", (event) => {
    const { code } = event.detail.event;
    lostAt ??= Date.now();
    if (code === SIGNED_OUT) {
      document.dispatchEvent(new Event("egs:signed-out"));
    } else if (code !== FOREIGN && !RECONNECTED_BY_HTMX.includes(code)) {
      setTimeout(event.detail.socketWrapper.reconnect, delay(tries));
      tries += 1;
    }
    show();
  });

  /* Only what refetches itself tells whether the page is fresh. */
  const isRefetch = (event) => event.detail.requestConfig.triggeringEvent?.type.startsWith("egs:");
  const fetchedIn = new WeakMap(); // element -> burst
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isRefetch(event)) return;
    const { elt, requestConfig } = event.detail;
    const of = requestConfig.triggeringEvent.detail?.burst;
    if (of && fetchedIn.get(elt) === of) {
      event.preventDefault();
      return;
    }
    fetchedIn.set(elt, of);
    askedAt ??= Date.now();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!isRefetch(event)) return;
    const { successful, xhr } = event.detail;
    if (successful) [failureCount, askedAt, freshAt] = [0, null, Date.now()];
    else if (xhr.status === 0 || xhr.status >= 500) failureCount += 1;
    else askedAt = null; // an answer, if not the one hoped for
    show();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-refetch]")) fireAll();
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && hiddenAt !== null && Date.now() - hiddenAt > ASLEEP_MS) fireAll();
    hiddenAt = document.hidden ? Date.now() : null;
  });
  addEventListener("online", fireAll);
  addEventListener("pageshow", (event) => { if (event.persisted) fireAll(); });
  setInterval(() => {
    if (!document.hidden && Date.now() - firedAllAt >= (isPolling() || isStale() ? POLL_MS : ANYWAY_MS)) fireAll();
    if (isPolling() || isStale()) show();
  }, 1000);
})();
