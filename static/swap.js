/* Nothing moves under the hand: what a swap would lose is kept by id, and another order of rows is only offered. */
(() => {
  const ROWS = "tr[id], li[id]";
  const LOGIN = "/login/";
  let kept = null;
  const wanted = new Set(); // ids of lists whose new order was asked for

  const ids = (root) => [...root.querySelectorAll(ROWS)].map((row) => row.id);

  const parsed = (response) => {
    const template = document.createElement("template");
    template.innerHTML = response;
    return template.content;
  };

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

  /* A selection of text is found again by the nearest id around each of its ends, and how much text stands between the two. */
  const textAt = (id, length) => {
    const walker = document.createTreeWalker(document.getElementById(id) ?? document.createElement("p"), NodeFilter.SHOW_TEXT);
    for (let left = length; walker.nextNode(); left -= walker.currentNode.length) {
      if (left <= walker.currentNode.length) return [walker.currentNode, left];
    }
    return null;
  };
  const finder = (target, node, offset) => {
    if (!target.contains(node)) return () => [node, offset];
    const { id } = (node.closest ? node : node.parentElement).closest("[id]");
    const range = document.createRange();
    range.setStart(document.getElementById(id), 0);
    range.setEnd(node, offset);
    const { length } = range.toString();
    return () => textAt(id, length);
  };
  const selectionIn = (target) => {
    const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = getSelection();
    if (isCollapsed || !(target.contains(anchorNode) || target.contains(focusNode))) return null;
    return { text: getSelection().toString().trim(), ends: [finder(target, anchorNode, anchorOffset), finder(target, focusNode, focusOffset)] };
  };
  const selectAgain = ({ text, ends }) => {
    const [from, to] = ends.map((find) => find());
    if (from && to) getSelection().setBaseAndExtent(...from, ...to);
    if (getSelection().toString().trim() !== text) getSelection().removeAllRanges(); // something else stands there now
  };

  /* Keeps what the server said of each element that refetches itself, without later changes by scripts. */
  const shown = new WeakMap();
  const markupOf = (response) => {
    const content = parsed(response);
    return content.childElementCount === 1 ? content.firstElementChild.outerHTML : null;
  };
  document.querySelectorAll("[hx-get][hx-swap=outerHTML][id]").forEach((element) => shown.set(element, element.outerHTML));

  /* Rows of other groups of the same table that are in this one now. They are taken out there: no row is shown twice. */
  const comeOver = (target, response) => {
    const rows = ids(parsed(response)).map((id) => document.getElementById(id));
    return rows.filter((row) => row && !target.contains(row) && target.closest("table")?.contains(row));
  };
  const takeOut = (row) => {
    shown.delete(row.closest("[hx-get]")); // what it is told next is news, even where it was told that before
    row.remove();
  };

  const keep = (target, others) => {
    const isSwapped = (element) => [target, ...others].some((root) => root.contains(element));
    const focused = isSwapped(document.activeElement) ? document.activeElement : null;
    const here = [...document.querySelectorAll(".is-here")].find(isSwapped);
    const cursor = here ?? focused?.closest(ROWS);
    const all = ids(target);
    const from = all.indexOf(cursor?.id);
    return {
      focus: focused && place(focused),
      caret: focused && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null,
      isHere: Boolean(here),
      // The row itself, then those below it, then those above it, the nearest first.
      rows: cursor ? [cursor.id, ...all.slice(from + 1), ...all.slice(0, Math.max(from, 0)).reverse()] : [],
      list: (target.closest("table") ?? target).id,
      folds: [...target.querySelectorAll("details[id][data-by-hand]")].map((fold) => [fold.id, fold.open]),
      scrolls: [...document.querySelectorAll("[data-keep-scroll][id]")].map((box) => [box.id, box.scrollLeft, box.scrollTop]),
      window: [scrollX, scrollY],
      selection: selectionIn(target),
    };
  };

  const restore = ({ focus, caret, isHere, rows, list, folds, scrolls, window: [x, y], selection }) => {
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
    if (selection) selectAgain(selection);
  };

  const isInOtherOrder = (old, response) => {
    const next = ids(parsed(response));
    const stay = new Set(next);
    const was = old.filter((id) => stay.has(id));
    const both = new Set(was);
    return next.filter((id) => both.has(id)).join(" ") !== was.join(" ");
  };

  const isInHand = (list) => list.contains(document.activeElement) || Boolean(selectionIn(list));

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

  /* A form that asks at each input gets no answer to an older input: that answer would undo the last input. */
  const inputs = new WeakMap(); // forms and how often something was put into each
  const asked = new WeakMap(); // requests and that count of their form
  const inputsOf = (element) => inputs.get(element.closest("form")) ?? 0;
  document.addEventListener("input", ({ target: { form } }) => { if (form) inputs.set(form, (inputs.get(form) ?? 0) + 1); }, { capture: true });
  document.addEventListener("htmx:configRequest", ({ detail }) => asked.set(detail, inputsOf(detail.elt)));
  const isOutdated = (request) => request.elt.matches("[hx-trigger*='input ']") && asked.get(request) !== inputsOf(request.elt);

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    if (xhr.status === 401 || new URL(xhr.responseURL || location.href).pathname === LOGIN) {
      event.detail.shouldSwap = false;
      document.dispatchEvent(new Event("egs:signed-out"));
      return;
    }
    if (!event.detail.shouldSwap) return;
    if (isOutdated(event.detail.requestConfig)) {
      event.detail.shouldSwap = false;
      return;
    }
    if (target.matches("[data-ordered]") && !wanted.delete(target.id) && isInHand(target) && isInOtherOrder(ids(target), event.detail.serverResponse)) {
      event.detail.shouldSwap = false;
      offer(target);
      return;
    }
    document.getElementById(noticeId(target))?.remove();
    const markup = event.detail.requestConfig.elt === target ? markupOf(event.detail.serverResponse) : null;
    if (markup && markup === shown.get(target)) {
      event.detail.shouldSwap = false; // nothing has changed
      return;
    }
    const others = comeOver(target, event.detail.serverResponse);
    kept = { ...keep(target, others), id: target.id, markup };
    others.forEach(takeOut);
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (!kept) return;
    const now = kept;
    kept = null;
    const element = document.getElementById(now.id);
    if (element && now.markup) shown.set(element, now.markup);
    restore(now);
  });
})();
