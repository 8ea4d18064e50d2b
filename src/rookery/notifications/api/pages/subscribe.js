"use strict";

const button = document.getElementById("subscribe");
const state = document.getElementById("status");

function show(text) {
  state.textContent = text;
}

function decodeKey(text) {
  const base64 = text.replace(/-/g, "+").replace(/_/g, "/");
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function findObstacle() {
  if (!window.isSecureContext) return "Notifications need a page that is reached by https.";
  if (/iPhone|iPad/.test(navigator.userAgent) && !("PushManager" in window)) {
    return "On this device, add this page to the home screen first and open it there.";
  }
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) {
    return "This browser does not support notifications.";
  }
  if (Notification.permission === "denied") {
    return "Notifications of this page are blocked in the settings of this browser. Allow them there, then reload this page.";
  }
  return null;
}

function hasKey(subscription, key) {
  const used = subscription.options && subscription.options.applicationServerKey;
  return Boolean(used) && new Uint8Array(used).every((byte, index) => byte === key[index]);
}

async function subscribe() {
  button.disabled = true;
  show("One moment …");
  const permission = await Notification.requestPermission();
  if (permission !== "granted") {
    button.disabled = permission === "denied";
    show("Notifications were not allowed.");
    return;
  }
  const key = decodeKey(button.dataset.key);
  await navigator.serviceWorker.register("/notify/service-worker.js", { scope: "/notify/" });
  const registration = await navigator.serviceWorker.ready;
  let subscription = await registration.pushManager.getSubscription();
  if (subscription && !hasKey(subscription, key)) {
    await subscription.unsubscribe();
    subscription = null;
  }
  subscription = subscription || (await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
  const response = await fetch(window.location.pathname, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(subscription.toJSON()),
  });
  if (!response.ok) {
    const error = await response.json().catch(() => ({}));
    throw new Error(error.message || `The server answered ${response.status}.`);
  }
  button.hidden = true;
  show("Notifications are on. You can close this page.");
}

const obstacle = findObstacle();
if (obstacle) {
  show(obstacle);
} else {
  button.disabled = false;
  button.addEventListener("click", () => {
    subscribe().catch((error) => {
      button.disabled = false;
      show(`That did not work: ${error.message}`);
    });
  });
}
