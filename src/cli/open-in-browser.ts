/** Opens an address in the user's browser, without showing it to others on this machine. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { CliHost } from "./host.ts";

/** How long a browser that was just told may take to read the file. */
const readMs = 3_000;

/**
 * Does nothing where there is no desktop, and for root, whose browser should be nobody's. The address holds what signs in, and
 * everybody may read the arguments of a process: so the browser is given a private file that leads there.
 */
export async function openInBrowser({ env, uid, stdout }: CliHost, address: string): Promise<void> {
  const hasDesktop = env["DISPLAY"] !== undefined || env["WAYLAND_DISPLAY"] !== undefined;
  if (uid === 0 || stdout.isTTY !== true || !hasDesktop) return;
  const dir = await mkdtemp(join(env["XDG_RUNTIME_DIR"] ?? tmpdir(), "svc-web-"));
  try {
    const file = join(dir, "open.html");
    // An address of ours: nothing in it means anything in HTML.
    const page = `<!doctype html><meta http-equiv="refresh" content="0;url=${encodeURI(address)}">\n`;
    await writeFile(file, page, { mode: 0o600 });
    const child = spawn("xdg-open", [pathToFileURL(file).href], { stdio: "ignore", env });
    const opened = await once(child, "exit").then(
      ([code]) => code === 0,
      () => false,
    );
    if (opened) await wait(readMs);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
