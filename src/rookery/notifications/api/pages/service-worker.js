"use strict";

// Shows messages in the declarative shape. Browsers that support it (Safari) show them without this worker.
function readNotification(event) {
  try {
    const message = event.data.json();
    if (message.web_push === 8030 && message.notification && message.notification.title) return message.notification;
  } catch (error) {
    // not JSON
  }
  return { title: "Notification" };
}

self.addEventListener("push", (event) => {
  const { title, body, navigate, tag, lang } = readNotification(event);
  const options = { body: body || "", data: { navigate: navigate || "/" } };
  if (tag) options.tag = tag;
  if (lang) options.lang = lang;
  event.waitUntil(self.registration.showNotification(title, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const target = new URL(event.notification.data.navigate, self.location.origin);
  if (target.protocol === "https:" || target.protocol === "http:") event.waitUntil(self.clients.openWindow(target.href));
});
