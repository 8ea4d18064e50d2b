// Swagger UI: validatorUrl is null, because the default sends the URL of the document to an external validator.
"use strict";

window.loadDescription().then((spec) => {
  window.viewer = window.SwaggerUIBundle({
    spec,
    dom_id: "#viewer",
    validatorUrl: null,
    queryConfigEnabled: false,
    deepLinking: true,
    filter: true,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    persistAuthorization: false,
    // The browser sends the key that opened the page. A key entered here replaces it, because a request has only one key.
    requestInterceptor: (request) => {
      const names = Object.keys(request.headers || {}).map((name) => name.toLowerCase());
      if (names.includes("x-api-key") || names.includes("authorization")) {
        request.credentials = "omit";
      }
      return request;
    },
  });
});
