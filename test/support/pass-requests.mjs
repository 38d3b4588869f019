// Forwards requests from a unix socket into the network namespace in which it runs: `GET /10.77.0.1:8080` returns the
// page `/` of that address.
import { createServer, get } from "node:http";

const [listenPath] = process.argv.slice(2);
const timeout = 20_000;
const server = createServer((question, answer) => {
  const asked = get(`http:/${question.url}/`, { agent: false, timeout }, (response) => {
    answer.writeHead(response.statusCode ?? 502);
    response.on("error", () => answer.destroy());
    response.pipe(answer);
  });
  asked.on("timeout", () => asked.destroy(new Error(`no response within ${timeout} ms`)));
  asked.on("error", (error) => {
    if (answer.headersSent) answer.destroy();
    else answer.writeHead(502).end(error.message);
  });
});
server.listen(listenPath, () => process.stdout.write("ready\n"));
