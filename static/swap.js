/* Nothing moves under the hand: what a swap would lose is kept by id, and another order of rows is only offered. */
(() => {
  const ROWS = "tr[id], li[id]";
  const LOGIN = "/login/";
  let kept = null;
  const wanted = new Set(); // ids of lists whose new order was asked for

  const ids = (root) => [...root.querySelectorAll(ROWS)].map((row) => row.id);

  /* A control without an id is known by its row and its place there. */
  const CONTROLS = "a, button, input, select, textarea, summary, [tabindex]";
  const place = (element) => {
    if (element.id) return { id: element.id };
    const holder = element.closest("[id]");
    return { id: holder.id, index: [...holder.querySelectorAll(CONTROLS)].indexOf(element) };
  };
  const at = ({ id, index }) => {
    const holder = document.getElementById(id);
    return index === undefined || index < 0 ? holder : holder?.querySelectorAll(CONTROLS)[index];
  };

  const keep = (target) => {
    const focused = target.contains(document.activeElement) ? document.activeElement : null;
    const cursor = target.querySelector(".is-here") ?? focused?.closest(ROWS);
    const all = ids(target);
    const from = cursor ? all.indexOf(cursor.id) : -1;
    return {
      focus: focused && place(focused),
      caret: focused && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null,
      isHere: Boolean(target.querySelector(".is-here")),
      // The row itself, then those below it, then those above it, the nearest first.
      rows: from < 0 ? [] : [...all.slice(from), ...all.slice(0, from).reverse()],
      list: (target.closest("table") ?? target).id,
      boxes: [...target.querySelectorAll("input[type=checkbox]")].filter((box) => box.closest("[id]")).map((box) => [place(box), box.checked]),
      folds: [...target.querySelectorAll("details[id][data-by-hand]")].map((fold) => [fold.id, fold.open]),
      scrolls: [...document.querySelectorAll("[data-keep-scroll][id]")].map((box) => [box.id, box.scrollLeft, box.scrollTop]),
      window: [scrollX, scrollY],
    };
  };

  const restore = ({ focus, caret, isHere, rows, list, boxes, folds, scrolls, window: [x, y] }) => {
    boxes.forEach(([where, checked]) => {
      const box = at(where);
      if (box?.matches("input[type=checkbox]")) box.checked = checked;
    });
    folds.forEach(([id, isOpen]) => {
      const fold = document.getElementById(id);
      if (fold) Object.assign(fold, { open: isOpen }).dataset.byHand = "";
    });
    const row = rows.map((id) => document.getElementById(id)).find(Boolean);
    if (isHere && row) {
      row.closest("table")?.querySelectorAll("tr[tabindex]").forEach((other) => { other.tabIndex = -1; other.classList.remove("is-here"); });
      row.classList.add("is-here");
      row.tabIndex = 0;
    }
    if (focus) {
      const same = at(focus) ?? row ?? document.getElementById(list);
      if (same && !same.matches(":focus")) {
        if (same.tabIndex < 0 && !same.hasAttribute("tabindex")) same.tabIndex = -1;
        same.focus({ preventScroll: true });
      }
      if (same && caret && caret[0] !== null && "selectionStart" in same) same.setSelectionRange(...caret);
    }
    scrolls.forEach(([id, left, top]) => document.getElementById(id)?.scrollTo({ left, top, behavior: "instant" }));
    scrollTo({ left: x, top: y, behavior: "instant" });
  };

  const isInOtherOrder = (old, response) => {
    const template = document.createElement("template");
    template.innerHTML = response;
    const next = ids(template.content);
    const stay = new Set(next);
    const was = old.filter((id) => stay.has(id));
    const both = new Set(was);
    return next.filter((id) => both.has(id)).join(" ") !== was.join(" ");
  };

  const isInHand = (list) => list.contains(document.activeElement) || Boolean(list.querySelector("tbody input:checked, tr input:checked"));

  const noticeId = (list) => `${list.id}-order`;
  const offer = (list) => {
    if (document.getElementById(noticeId(list))) return;
    const notice = document.createElement("div");
    notice.id = noticeId(list);
    notice.className = "notice order-changed";
    notice.setAttribute("role", "status");
    notice.append("Order changed");
    const show = document.createElement("button");
    show.className = "btn btn-sm push";
    show.type = "button";
    show.textContent = "Show";
    show.addEventListener("click", () => {
      notice.remove();
      wanted.add(list.id);
      for (const [topic] of (list.getAttribute("hx-trigger") ?? "").matchAll(/egs:[a-z]+/g)) htmx.trigger(document.body, topic);
    });
    notice.append(show);
    (list.closest("table") ?? list).before(notice);
  };

  // Also by the keyboard: Enter on a summary is a click.
  document.addEventListener("click", (event) => {
    const fold = event.target.closest("summary")?.parentElement;
    if (fold?.id) fold.dataset.byHand = "";
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    if (xhr.status === 401 || new URL(xhr.responseURL || location.href).pathname === LOGIN) {
      event.detail.shouldSwap = false;
      location.assign(`${LOGIN}?next=${encodeURIComponent(location.pathname + location.search)}`);
      return;
    }
    if (!event.detail.shouldSwap) return;
    if (target.matches("[data-ordered]") && !wanted.delete(target.id) && isInHand(target) && isInOtherOrder(ids(target), event.detail.serverResponse)) {
      event.detail.shouldSwap = false;
      offer(target);
      return;
    }
    document.getElementById(noticeId(target))?.remove();
    kept = keep(target);
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (!kept) return;
    const now = kept;
    kept = null;
    restore(now);
  });
})();
