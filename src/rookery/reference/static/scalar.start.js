// Scalar: without fonts, proxy, telemetry, agent and tools from other hosts.
"use strict";

window.loadDescription().then((content) => {
  window.viewer = window.Scalar.createApiReference("#viewer", {
    content,
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
});
