/** A client that sends a request every 10 ms over new connections while something else runs. */
import { request } from "node:http";
import { setInterval } from "node:timers/promises";

/** The status of `GET /v1/apps`. */
export function ask(socketPath: string): Promise<number> {
  return new Promise((resolve, reject) => {
    request({ socketPath, path: "/v1/apps", agent: false }, (response) => {
      response.resume().once("end", () => resolve(response.statusCode ?? 0));
      response.once("error", reject);
    })
      .once("error", reject)
      .end();
  });
}

/** @returns the status of each response, or the error without one */
export async function askWhile(socketPath: string, work: () => Promise<void>): Promise<(number | string)[]> {
  const answers: Promise<number | string>[] = [];
  const end = new AbortController();
  const asking = (async () => {
    for await (const _tick of setInterval(10, undefined, { signal: end.signal })) {
      answers.push(ask(socketPath).catch((error: unknown) => String(error)));
    }
  })().catch(() => undefined);
  try {
    await work();
  } finally {
    end.abort();
    await asking;
  }
  return Promise.all(answers);
}
