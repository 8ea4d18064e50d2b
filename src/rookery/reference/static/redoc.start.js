// Redoc: the bundle is a module. Telemetry is on by default and disabled here.
const { init } = await import(new URL(document.body.dataset.engine, window.pageAddress).href);

init(await window.loadDescription(), { disableTelemetry: true, hideDownloadButtons: true }, document.getElementById("viewer"));
