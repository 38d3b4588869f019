/**
 * Addresses that `http` jobs of regular users may not reach. The daemon sends requests from the host as root,
 * so a job could read local services, or the host's credentials from a cloud's metadata service. Private
 * networks (RFC 1918, fc00::/7) are allowed, since every user of the host can reach them.
 */
import { BlockList, isIPv4 } from "node:net";

/** RFC 6890 and its successors: this host, loopback, link-local, protocol assignments, multicast, reserved. */
const blockedIpv4: readonly [network: string, prefix: number][] = [
  ["0.0.0.0", 8],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["192.0.0.0", 24],
  ["224.0.0.0", 3],
  // Metadata services outside of the link-local network.
  ["100.100.100.200", 32],
  ["168.63.129.16", 32],
];

const blockedIpv6: readonly [network: string, prefix: number][] = [
  ["fe80::", 10],
  ["fec0::", 10],
  ["ff00::", 8],
  // Teredo embeds an IPv4 address in an obfuscated form.
  ["2001::", 32],
  // Translation within a site (RFC 8215). The position of the embedded IPv4 address is unknown.
  ["64:ff9b:1::", 48],
  ["fd00:ec2::254", 128],
];

/**
 * IPv6 networks that embed an IPv4 address: compatible (including `::` and `::1`), mapped, translated, 6to4.
 * The address starts at the given group.
 */
const embeddings: readonly { prefix: readonly number[]; at: number }[] = [
  { prefix: [0, 0, 0, 0, 0, 0], at: 6 },
  { prefix: [0, 0, 0, 0, 0, 0xffff], at: 6 },
  { prefix: [0, 0, 0, 0, 0xffff, 0], at: 6 },
  { prefix: [0x64, 0xff9b, 0, 0, 0, 0], at: 6 },
  { prefix: [0x2002], at: 1 },
];

export class AddressPolicy {
  readonly #blocked = new BlockList();

  constructor() {
    for (const [network, prefix] of blockedIpv4) this.#blocked.addSubnet(network, prefix, "ipv4");
    for (const [network, prefix] of blockedIpv6) this.#blocked.addSubnet(network, prefix, "ipv6");
  }

  /** @param address an IP address in any spelling that `node:net` takes, without brackets */
  isBlocked(address: string): boolean {
    if (isIPv4(address)) return this.#blocked.check(address, "ipv4");
    const [plain = ""] = address.split("%", 1);
    const embedded = embeddedIpv4(groupsOf(plain));
    if (embedded !== undefined && this.#blocked.check(embedded, "ipv4")) return true;
    return this.#blocked.check(plain, "ipv6");
  }
}

function embeddedIpv4(groups: readonly number[]): string | undefined {
  const found = embeddings.find(({ prefix }) => prefix.every((group, at) => groups[at] === group));
  if (found === undefined) return undefined;
  const [high = 0, low = 0] = groups.slice(found.at);
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join(".");
}

/** The eight groups of an IPv6 address. */
function groupsOf(address: string): number[] {
  // The URL parser normalizes the notation: no dotted part, at most one `::`.
  const canonical = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail] = canonical.split("::");
  const [before, after] = [head, tail ?? ""].map((part) => part.split(":").filter((group) => group !== ""));
  const missing = 8 - (before?.length ?? 0) - (after?.length ?? 0);
  const zeros = Array.from({ length: tail === undefined ? 0 : missing }, () => "0");
  return [...(before ?? []), ...zeros, ...(after ?? [])].map((group) => Number.parseInt(group, 16));
}
