/** A shell through a real browser's WebSocket. */
import test from "ava";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { browserPath } from "../../support/browser.ts";
import { startDaemon } from "../../support/daemon.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { freePort, writePackage } from "../../support/packages.ts";

const browserTest = browserPath === undefined ? test.skip : test;
const why = browserPath === undefined ? " (skipped: no Chromium)" : "";

browserTest(`a page opens a shell, types, resizes and sees it exit${why}`, async (t) => {
  t.timeout(120_000);
  await using daemon = await startDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  const browser = await launchBrowser();
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${daemon.port}/`);
    // Created late: the token is valid for half a minute, and a browser may take as long to start.
    const { token } = await apps.issueConsoleToken({ appId: "web", session: "attach" });
    const seen = await page.evaluate(
      ({ token, host }) =>
        new Promise<{ text: string; said: { type: string; code?: number }[]; code: number }>((resolve) => {
          const url = `ws://${host}/v1/apps/web/console?session=attach`;
          const socket = new WebSocket(url, ["svc.console.v1", `svc.token.${token}`]);
          socket.binaryType = "arraybuffer";
          const decoder = new TextDecoder();
          const said: { type: string }[] = [];
          let text = "";
          let step = 0;
          const type = (line: string): void => socket.send(new TextEncoder().encode(line));
          const steps: [RegExp, () => void][] = [
            [
              /[#$] /,
              () => {
                socket.send(JSON.stringify({ type: "resize", cols: 91, rows: 33 }));
                type("stty size; echo grüße-€😀-$((40+2))\n");
              },
            ],
            // Its output shows that it owns the terminal; before that, ^C would reach the shell.
            [/€😀-42/, () => type("sh -c 'echo begun-$((1+1)); exec sleep 1000'\n")],
            [/begun-2/, () => type("\x03exit 6\n")],
          ];
          socket.addEventListener("message", (event) => {
            const data: unknown = event.data;
            if (typeof data === "string") {
              said.push(JSON.parse(data) as { type: string });
              return;
            }
            text += decoder.decode(data as ArrayBuffer, { stream: true });
            while (steps[step]?.[0].test(text) === true) steps[step++]?.[1]();
          });
          socket.addEventListener("close", ({ code }) => resolve({ text, said, code }));
        }),
      { token, host: `127.0.0.1:${daemon.port}` },
    );
    t.regex(seen.text, /33 91/);
    t.regex(seen.text, /grüße-€😀-42/);
    t.is(seen.code, 1000);
    t.deepEqual([seen.said[0]?.type, seen.said.at(-1)], ["opened", { type: "exit", code: 6 }]);
  } finally {
    await browser.close();
  }
});
