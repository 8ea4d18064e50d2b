// Loads the API description for the viewers.
"use strict";

// The description is read from the root of the server, and not from below /api: a browser sends the credentials that opened this page along
// with requests at and below the addresses that asked for them. So calls that are tried out carry them too, and no script ever reads a key.
// location.origin, since document.baseURI has the key in it if the address of the page has: fetch refuses such an address.
window.pageAddress = new URL(location.pathname, location.origin);

// A page whose address has credentials in it may not change its history, which Scalar does. The browser keeps them for the plain address.
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
  // Calls go to the address that this page was opened under, which may be another name of the server, or a proxy's.
  const here = new URL(".", address).href.replace(/\/$/, "");
  const others = description.servers.filter((server) => server.url.replace(/\/$/, "") !== here);
  return { ...description, servers: [{ url: here }, ...others] };
};
