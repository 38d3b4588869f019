/** Opens an address in the user's browser without revealing it to other users of this host. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { CliHost } from "./host.ts";

/** How long a browser may take to read the file, in milliseconds. */
const readMs = 3_000;

/**
 * Does nothing without a desktop, and for root, who should not run a browser. The address contains a sign-in
 * secret, and arguments of a process are public. So the browser gets the path of a private file that
 * redirects to the address.
 * @param address ignored unless it is a web address: a remote daemon chooses it
 */
export async function openInBrowser({ env, uid, stdout }: CliHost, address: string): Promise<void> {
  const hasDesktop = env["DISPLAY"] !== undefined || env["WAYLAND_DISPLAY"] !== undefined;
  if (uid === 0 || stdout.isTTY !== true || !hasDesktop || !/^https?:\/\//.test(address)) return;
  const dir = await mkdtemp(join(env["XDG_RUNTIME_DIR"] ?? tmpdir(), "svc-web-"));
  try {
    const file = join(dir, "open.html");
    // Escaped, it contains nothing that ends the attribute.
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
