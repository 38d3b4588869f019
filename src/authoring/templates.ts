/** Small programs for new packages, whose manifest is generated like any other. */
export const templateNames = ["node", "python", "go", "static", "container", "compose"] as const;
export type TemplateName = (typeof templateNames)[number];

/** Much more than these programs use. */
export const templateMemory = "256MiB";

const nodeServer = `import { createServer } from "node:http";

const port = Number(process.env.PORT ?? 8080);
createServer((_request, response) => response.end("Hello!\\n")).listen(port, "127.0.0.1", () => {
  console.log(\`listening on http://127.0.0.1:\${port}\`);
});
`;

const pythonServer = `import os
from http.server import BaseHTTPRequestHandler, HTTPServer


class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Hello!\\n")


port = int(os.environ.get("PORT", "8080"))
print(f"listening on http://127.0.0.1:{port}")
HTTPServer(("127.0.0.1", port), Hello).serve_forever()
`;

const goServer = `package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	port := os.Getenv("PORT")
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Hello!") })
	log.Printf("listening on http://127.0.0.1:%s", port)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
`;

const page = `<!doctype html>
<html lang="en">
  <title>Hello</title>
  <h1>Hello!</h1>
</html>
`;

/** The files of each template, by name. */
const templates: Readonly<Record<TemplateName, Readonly<Record<string, string>>>> = {
  node: {
    "package.json":
      '{\n  "type": "module",\n  "private": true,\n  "scripts": { "start": "node server.js" }\n}\n',
    "server.js": nodeServer,
  },
  python: { "app.py": pythonServer },
  go: { "go.mod": "module hello\n\ngo 1.21\n", "main.go": goServer },
  static: { "public/index.html": page },
  container: {
    Dockerfile:
      'FROM busybox:stable\nCOPY public /www\nEXPOSE 8080\nCMD ["httpd", "-f", "-v", "-p", "8080", "-h", "/www"]\n',
    "public/index.html": page,
  },
  compose: {
    "compose.yaml":
      'services:\n  web:\n    image: busybox:stable\n    command: [httpd, -f, -v, -p, "8080", -h, /www]\n' +
      '    ports: ["${PORT:-8080}:8080"]\n    volumes: ["./public:/www:ro"]\n',
    "public/index.html": page,
  },
};

export function templateFiles(name: TemplateName): Readonly<Record<string, string>> {
  return templates[name];
}
