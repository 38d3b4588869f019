/** A network bridge and address ranges that no other engine of this host uses. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { BlockList } from "node:net";
import { promisify } from "node:util";

const run = promisify(execFile);
const slots = 200;

export interface TestBridge extends AsyncDisposable {
  /** Name of the bridge's interface, which also names the engine's cgroup. */
  readonly name: string;
  /** The address range for further networks of the engine. */
  readonly pool: string;
}

/** Uses the first free bridge, or one whose test run died. @throws Error if all are in use. */
export async function reserveBridge(): Promise<TestBridge> {
  for (let slot = 0; slot < slots; slot++) {
    const name = `svct${slot}`;
    // The kernel rejects a second interface with that name, which decides the owner.
    const isMine = (await tryIp("link", "add", name, "type", "bridge")) || (await takeOver(name));
    if (!isMine) continue;
    await ip("link", "set", name, "alias", String(process.pid), "up");
    const own = `10.231.${slot}.0/24`;
    await ip("address", "add", own.replace(".0/", ".1/"), "dev", name);
    const pool = `10.${232 + Math.floor(slot / 16)}.${(slot % 16) * 16}.0/20`;
    for (const range of [own, pool]) await separateNetworks(range);
    return {
      name,
      pool,
      [Symbol.asyncDispose]: async () => {
        // Networks of an engine that was killed leave their bridges behind.
        for (const bridge of [...(await bridgesIn(pool)), name]) await tryIp("link", "delete", bridge);
        for (const range of [own, pool]) {
          for (const rule of rulesOf(range)) await tryFirewall("--delete", rule);
        }
      },
    };
  }
  throw new Error(`all ${slots} bridges for test engines are in use`);
}

/**
 * Lets containers of one network reach each other, and keeps networks apart. Bridged packets pass the host's firewall if
 * this is set; another engine's policy `FORWARD DROP` drops them there, and its `ip_forward` connects the networks.
 */
async function separateNetworks(range: string): Promise<void> {
  const filters = await readFile("/proc/sys/net/bridge/bridge-nf-call-iptables", "utf8").catch(() => "0");
  if (filters.trim() === "0") return;
  for (const rule of rulesOf(range)) {
    // A test run that died may have left it.
    if (await tryFirewall("--check", rule)) continue;
    if (!(await tryFirewall("--insert", rule)))
      console.warn(`The host's firewall may affect containers of ${range}: iptables failed.`);
  }
}

/** The first accepts packets that stay on one bridge; the second drops those between two. */
function rulesOf(range: string): string[][] {
  const within = ["-s", range, "-d", range, "-m", "physdev"];
  return [
    [...within, "--physdev-is-bridged", "-j", "ACCEPT"],
    [...within, "!", "--physdev-is-bridged", "-j", "DROP"],
  ];
}

function tryFirewall(
  command: "--check" | "--delete" | "--insert",
  rule: readonly string[],
): Promise<boolean> {
  return succeeds(run("iptables", ["--wait", "10", command, "FORWARD", ...rule]));
}

async function bridgesIn(pool: string): Promise<string[]> {
  const [start = "", prefix] = pool.split("/");
  const range = new BlockList();
  range.addSubnet(start, Number(prefix));
  const { stdout } = await run("ip", ["-json", "address", "show", "type", "bridge"]);
  // Selected by type; the others are listed as empty objects.
  const links = JSON.parse(stdout) as { ifname?: string; addr_info?: { local: string }[] }[];
  return links.flatMap(({ ifname, addr_info }) =>
    ifname !== undefined && addr_info?.some(({ local }) => range.check(local)) ? [ifname] : [],
  );
}

async function takeOver(name: string): Promise<boolean> {
  const owner = (await readFile(`/sys/class/net/${name}/ifalias`, "utf8").catch(() => "")).trim();
  // An interface without an owner is being set up by another test run.
  if (owner === "" || isAlive(Number(owner))) return false;
  return (await tryIp("link", "delete", name)) && (await tryIp("link", "add", name, "type", "bridge"));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function ip(...args: string[]): Promise<void> {
  await run("ip", args);
}

function tryIp(...args: string[]): Promise<boolean> {
  return succeeds(ip(...args));
}

function succeeds(work: Promise<unknown>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}
