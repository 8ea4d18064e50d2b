// Redoc: its bundle is a module; telemetry is on unless it is said not to be.
const { dataset } = document.body;
const { init } = await import(new URL(dataset.engine, document.baseURI).href);

init(dataset.document, { disableTelemetry: true, hideDownloadButtons: true }, document.getElementById("viewer"));
