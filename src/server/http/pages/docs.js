/** The API page: renders openapi.json with Swagger UI. A token that is entered stays in the page's memory. */

/** @type {{ SwaggerUIBundle: (options: object) => void, location: { href: string } }} */
const page = /** @type {any} */ (globalThis);

const response = await fetch("v1/openapi.json");
const spec = /** @type {{ servers: object[] }} */ (await response.json());
// Calls go to the daemon that served the page, whatever its port, or the proxy before it.
spec.servers = [
  { url: new URL(".", page.location.href).href.replace(/\/$/, ""), description: "This daemon" },
];

page.SwaggerUIBundle({
  spec,
  dom_id: "#api",
  deepLinking: true,
  filter: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Nothing is asked of anybody but this daemon.
  validatorUrl: null,
});
