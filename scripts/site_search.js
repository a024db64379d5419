// Put before the theme's search in its worker. The search engine would take parts of our names for operators, as in
// "--fail-if" and "flow:rate". Sections whose name equals the query come before those whose name only begins with it.
{
  const listen = self.addEventListener.bind(self);
  const answer = self.postMessage.bind(self);
  const plain = (text) => text.replace(/(^|\s)[-+]+(?=[^\s-])/g, "$1").replace(/[:~^]/g, " ");
  const bare = (text) => plain(text.replace(/<[^>]*>/g, "")).trim().toLowerCase();
  const names = (title) => [bare(title), ...(title.replace(/<[^>]*>/g, "").match(/--[\w-]+/g) ?? []).map(bare)];
  let asked = "";
  self.addEventListener = (kind, heard) => {
    if (kind !== "message") return listen(kind, heard);
    return listen(kind, ({ data }) => {
      if (typeof data?.data !== "string") return heard({ data });
      asked = bare(data.data);
      return heard({ data: { ...data, data: plain(data.data) } });
    });
  };
  self.postMessage = (message, ...rest) => {
    const called = (place) => names(place.title).includes(asked);
    const first = (all, is) => [...all.filter(is), ...all.filter((one) => !is(one))];
    const items = message?.data?.items;
    if (Array.isArray(items)) {
      const pages = items.map((places) => first(places, called));
      message.data.items = first(pages, (places) => places.some(called));
    }
    answer(message, ...rest);
  };
}
