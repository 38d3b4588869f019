/** Ranges of IPv4 addresses for networks that svc makes. */

/** From `start` up to, not including, `end`, which lie a power of two apart. */
export interface Subnet {
  readonly start: number;
  readonly end: number;
}

const addressBits = 32;

/** `10.201.0.0/16`; `undefined` for anything else, such as IPv6 or an address inside of its subnet. */
export function parseSubnet(text: string): Subnet | undefined {
  const [, address = "", prefix = ""] = /^(\d{1,3}(?:\.\d{1,3}){3})\/(\d{1,2})$/.exec(text) ?? [];
  const bytes = address.split(".").map(Number);
  const bits = Number(prefix);
  if (prefix === "" || bits > addressBits || bytes.some((byte) => byte > 255)) return undefined;
  const size = 2 ** (addressBits - bits);
  const start = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  return start % size === 0 ? { start, end: start + size } : undefined;
}

export function formatSubnet({ start, end }: Subnet): string {
  const bytes = [24, 16, 8, 0].map((shift) => Math.floor(start / 2 ** shift) % 256);
  return `${bytes.join(".")}/${addressBits - Math.log2(end - start)}`;
}

/** Room for so many addresses beside that of the network, of the host in it, and the broadcast address; 16 at least. */
export function sizeFor(addresses: number): number {
  return Math.max(16, 2 ** Math.ceil(Math.log2(addresses + 3)));
}

/** The lowest free range of `size` addresses; `undefined` when there is none. */
export function freeSubnet(pool: Subnet, size: number, taken: readonly Subnet[]): Subnet | undefined {
  let start = Math.ceil(pool.start / size) * size;
  while (start + size <= pool.end) {
    const end = start + size;
    const hit = taken.find((other) => other.start < end && start < other.end);
    if (hit === undefined) return { start, end };
    start = Math.ceil(hit.end / size) * size;
  }
  return undefined;
}

/** Lines of `/proc/net/route` have addresses as hexadecimal numbers in the machine's byte order, which is little-endian. */
const routeLine = /^\S+\t([0-9A-F]{8})\t[0-9A-F]{8}(?:\t\S+){4}\t([0-9A-F]{8})\t/;
/** What a wider route covers is the rest of the world: a way out, not a network that would be hidden. */
const widestRoute = 2 ** (addressBits - 8);

/** The networks that the host has routes to. @param table the text of `/proc/net/route` */
export function routedSubnets(table: string): Subnet[] {
  return table.split("\n").flatMap((line): Subnet[] => {
    const [, destination, mask] = routeLine.exec(line) ?? [];
    if (destination === undefined || mask === undefined) return [];
    const start = swapped(destination);
    const size = 2 ** addressBits - swapped(mask);
    return size > widestRoute ? [] : [{ start, end: start + size }];
  });
}

function swapped(hex: string): number {
  return Buffer.from(hex, "hex").readUInt32LE();
}
