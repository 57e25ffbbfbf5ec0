/* Before the first paint, so that a page never flashes in the other theme. */
(() => {
  const wanted = localStorage.getItem("egs-theme");
  if (wanted === "light" || wanted === "dark") document.documentElement.dataset.bsTheme = wanted;
})();
