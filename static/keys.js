/* Keys: what the script does itself stands in ACTS; whatever says data-key is clicked or focused. The list of keys is made of both,
   so it says what works on this page. Single letters can be switched off. */
(() => {
  const SEQUENCE_MS = 1200;
  const REST_MS = 200;
  const FIELDS = "input:not([type=checkbox], [type=radio]), select, textarea";
  const choice = document.querySelector("[data-letter-keys-switch]");
  let before = "";
  let beforeTimer;

  const rows = () => [...document.querySelectorAll("[data-rows] tbody tr[tabindex]")];
  const hasRows = () => rows().length > 0;
  const here = (all) => Math.max(all.indexOf(document.activeElement.closest("tr")), all.findIndex((row) => row.classList.contains("is-here")));

  const mark = (row, all) => all.forEach((other) => {
    other.classList.toggle("is-here", other === row);
    other.tabIndex = other === row ? 0 : -1;
  });

  const go = (by) => {
    const all = rows();
    const row = all[Math.min(Math.max(here(all) + by, 0), all.length - 1)];
    mark(row, all);
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };

  const open = () => {
    const row = document.activeElement;
    const link = row.matches("[data-rows] tr") ? row.querySelector("a") : null;
    link?.click();
  };

  const form = () => document.activeElement.closest("form") ?? document.querySelector("main form[data-once]");

  const holderOf = (key) => {
    const all = [...document.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)];
    return all.find((found) => found.checkVisibility()) ?? all[0];
  };

  const press = (key) => {
    const holder = holderOf(key);
    if (holder?.matches("input, select, textarea")) holder.focus();
    else holder?.click();
    return Boolean(holder);
  };

  /* `isLetter`: not while somebody types, and only if single letters are wanted. */
  const ACTS = {
    "j": { says: "Next row", works: hasRows, act: () => go(1), isLetter: true },
    "k": { says: "Row before", works: hasRows, act: () => go(-1), isLetter: true },
    "Enter": { says: "Open the row", works: hasRows, act: open },
    "Ctrl K": { says: "Jump to a page or workspace", works: () => holderOf("/") && !document.querySelector("dialog[open]"), act: () => press("/") },
    "Ctrl Enter": { says: "Send the form", works: form, act: () => form().requestSubmit() },
    "Esc": { says: "Close dialog", works: () => true }, // the browser does it
  };

  const areLettersOn = () => choice?.checked !== false;

  const letter = (key) => {
    const sequence = before ? `${before} ${key}` : key;
    clearTimeout(beforeTimer);
    before = "";
    if (press(sequence)) return true;
    if (document.querySelector(`[data-key^="${CSS.escape(key)} "]`)) {
      before = key;
      beforeTimer = setTimeout(() => { before = ""; }, SEQUENCE_MS);
      return true;
    }
    const { act, isLetter, works } = ACTS[key] ?? {};
    if (!isLetter || !works()) return false;
    act();
    return true;
  };

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const isControl = event.ctrlKey || event.metaKey;
    if (isControl) {
      const { act, works } = ACTS[`Ctrl ${key.length === 1 ? key.toUpperCase() : key}`] ?? {};
      if (!act || !works()) return;
      event.preventDefault();
      act();
      return;
    }
    if (event.altKey || target.closest(`${FIELDS}, dialog[open], [popover]:popover-open`)) return;
    if (key === "Enter") open();
    else if (key.length === 1 && areLettersOn() && letter(key)) event.preventDefault();
  });

  // The cursor follows the pointer and the tab key, so that j goes on from there. A row where it rests says so; a click is a choice already.
  let restTimer;
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest?.("[data-rows] tbody tr[tabindex]");
    if (row) mark(row, rows());
    clearTimeout(restTimer);
    if (row && row === event.target) restTimer = setTimeout(() => htmx.trigger(row, "egs:rest"), REST_MS);
  });
  document.addEventListener("click", () => clearTimeout(restTimer));

  /* The list of keys. */
  const list = document.querySelector("[data-key-list]");
  if (!list) return;

  const nameOf = (holder) => {
    const said = holder.dataset.keySays ?? holder.getAttribute("aria-label");
    if (said) return said;
    const copy = holder.cloneNode(true);
    copy.querySelectorAll("kbd, .count").forEach((part) => part.remove());
    return copy.textContent.trim();
  };

  const lines = () => {
    const keyed = [...document.querySelectorAll("[data-key]")].map((holder) => holder.dataset.key);
    const held = [...new Set(keyed)].map((key) => ({ key, says: nameOf(holderOf(key)), isLetter: true }));
    const own = Object.entries(ACTS).filter(([, { works }]) => works()).map(([key, entry]) => ({ key, ...entry }));
    return [...held, ...own].filter(({ isLetter }) => !isLetter || areLettersOn());
  };

  const fill = () => list.replaceChildren(...lines().flatMap(({ key, says }) => {
    const [term, meaning, cap] = ["dt", "dd", "kbd"].map((name) => document.createElement(name));
    cap.textContent = key;
    term.append(cap);
    meaning.textContent = says;
    return [term, meaning];
  }));

  choice.checked = localStorage.getItem("egs-letter-keys") !== "off";
  choice.addEventListener("change", () => {
    localStorage.setItem("egs-letter-keys", choice.checked ? "on" : "off");
    fill();
  });
  list.closest("[popover]").addEventListener("beforetoggle", (event) => { if (event.newState === "open") fill(); });
})();
