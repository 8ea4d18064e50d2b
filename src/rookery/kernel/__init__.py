"""The foundation of every domain: settings, errors, the record store, jobs, events and HTTP. Imports no other package of Rookery."""
