// Loads the OpenAPI document for the viewers.
"use strict";

// The document is loaded from the root of the server. A browser sends the credentials of this page only at and below the path that
// requested them, so this makes it send them with all calls from this page too, and no script ever reads a key.
// The URL is built from location.origin, because document.baseURI contains the key if the URL of the page does, and fetch rejects such a URL.
window.pageAddress = new URL(location.pathname, location.origin);

// A page with credentials in its URL may not change its history, as Scalar does. The browser sends the same credentials for the plain URL.
const hasCredentials = new URL(document.baseURI).username !== "";
if (hasCredentials) {
  location.replace(new URL(location.search + location.hash, window.pageAddress));
}

window.loadDescription = async () => {
  if (hasCredentials) {
    return new Promise(() => {});
  }
  const address = new URL(document.body.dataset.document, window.pageAddress);
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  if (!response.ok) {
    const { message } = await response.json().catch(() => ({ message: response.statusText }));
    document.getElementById("viewer").textContent = `The API description could not be loaded (${response.status}): ${message}`;
    throw new Error(`The API description could not be loaded: ${response.status}`);
  }
  const description = await response.json();
  // Calls go to the host of this page, which may be another name of the server, or a proxy.
  const here = new URL(".", address).href.replace(/\/$/, "");
  const others = description.servers.filter((server) => server.url.replace(/\/$/, "") !== here);
  return { ...description, servers: [{ url: here }, ...others] };
};
