/** Determines which registries the engine is configured to access without verified certificates, from its `info`. */
import { lookup } from "node:dns/promises";
import { BlockList, isIP } from "node:net";
import { isLoopbackHost } from "./image-reference.ts";

/** `RegistryConfig` of `GET /info`; engines omit or null empty fields. */
export interface RegistryConfig {
  readonly InsecureRegistryCIDRs?: readonly string[] | null;
  readonly IndexConfigs?: Readonly<
    Record<string, { readonly Secure?: boolean; readonly Mirrors?: readonly string[] | null }>
  > | null;
}

/** @param host with its port, as in image names */
export async function isInsecureRegistry(host: string, config: RegistryConfig): Promise<boolean> {
  const index = config.IndexConfigs?.[host];
  if (index?.Secure !== undefined) return !index.Secure;
  if (isLoopbackHost(host)) return true;
  const ranges = rangesOf(config.InsecureRegistryCIDRs ?? []);
  if (ranges === undefined) return false;
  const name = host.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  const addresses = isIP(name) > 0 ? [name] : await resolve(name);
  return addresses.some((address) => ranges.check(address, isIP(address) === 6 ? "ipv6" : "ipv4"));
}

/** `undefined` when there are none besides loopback. */
function rangesOf(cidrs: readonly string[]): BlockList | undefined {
  const ranges = new BlockList();
  let isEmpty = true;
  for (const cidr of cidrs) {
    const [address = "", prefix = ""] = cidr.split("/");
    if (isIP(address) === 0 || !/^\d{1,3}$/.test(prefix) || cidr === "127.0.0.0/8") continue;
    ranges.addSubnet(address, Number(prefix), isIP(address) === 6 ? "ipv6" : "ipv4");
    isEmpty = false;
  }
  return isEmpty ? undefined : ranges;
}

async function resolve(name: string): Promise<string[]> {
  const found = await lookup(name, { all: true }).catch(() => []);
  return found.map(({ address }) => address);
}
