// Scalar: no fonts, no proxy, no telemetry, no agent and no tools of its makers' hosts.
"use strict";

window.viewer = window.Scalar.createApiReference("#viewer", {
  url: document.body.dataset.document,
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  showDeveloperTools: "never",
  hideClientButton: true,
  persistAuth: false,
  customCss: ":root { --scalar-custom-header-height: 44px; }",
  externalUrls: { dashboardUrl: "", registryUrl: "", proxyUrl: "", apiBaseUrl: "" },
});
