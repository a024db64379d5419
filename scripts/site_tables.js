// A click on a column's heading sorts the table's rows by that column; a second click reverses the order.
document.addEventListener("click", (event) => {
  const head = event.target.closest("article thead th");
  if (!head) return;
  const body = head.closest("table").tBodies[0];
  const column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = (row) => (row.cells[column] ? row.cells[column].textContent.trim() : "");
  const number = (said) => (said === "" ? Infinity : parseFloat(said));
  const rows = Array.from(body.rows).map((row) => [text(row), row]);
  const numbers = rows.every(([said]) => said === "" || /^[-+]?[\d.]/.test(said));
  rows.sort(([a], [b]) => (numbers ? number(a) - number(b) : a.localeCompare(b)) * (down ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
});
