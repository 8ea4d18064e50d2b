// Redoc: its bundle is a module; telemetry is on unless it is said not to be.
const { init } = await import(new URL(document.body.dataset.engine, window.pageAddress).href);

init(await window.loadDescription(), { disableTelemetry: true, hideDownloadButtons: true }, document.getElementById("viewer"));
