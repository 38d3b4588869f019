/** IPv4 ranges for networks that svc creates. */

/** From `start` to `end`, exclusive; the size is a power of two. */
export interface Subnet {
  readonly start: number;
  readonly end: number;
}

const addressBits = 32;

/** Parses `10.201.0.0/16`; `undefined` for anything else, such as IPv6 or an address within a subnet. */
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

/** The ranges for private networks (RFC 1918). */
const privateRanges: readonly Subnet[] = [
  { start: 10 * 2 ** 24, end: 11 * 2 ** 24 },
  { start: 172 * 2 ** 24 + 16 * 2 ** 16, end: 172 * 2 ** 24 + 32 * 2 ** 16 },
  { start: 192 * 2 ** 24 + 168 * 2 ** 16, end: 192 * 2 ** 24 + 169 * 2 ** 16 },
];

/** Whether a range is private: of RFC 1918, or unique local addresses of IPv6 (RFC 4193). */
export function isPrivateSubnet(text: string): boolean {
  const subnet = parseSubnet(text);
  if (subnet === undefined)
    return /^f[cd][0-9a-f]{2}:[0-9a-f:]*\/(?:[7-9]|[1-9]\d|1[01]\d|12[0-8])$/i.test(text);
  return privateRanges.some((range) => isWithin(subnet, range));
}

/** False for an absent subnet. */
export function isWithin(subnet: Subnet | undefined, range: Subnet): boolean {
  return subnet !== undefined && subnet.start >= range.start && subnet.end <= range.end;
}

export function overlaps(one: Subnet, other: Subnet): boolean {
  return one.start < other.end && other.start < one.end;
}

/** Smallest subnet for this many addresses besides those of the network, the host and broadcast; at least 16. */
export function sizeFor(addresses: number): number {
  return Math.max(16, 2 ** Math.ceil(Math.log2(addresses + 3)));
}

/** The lowest free ranges of `size` addresses, at most `count`, in one pass over the sorted `taken` ranges. */
export function freeSubnets(pool: Subnet, size: number, count: number, taken: readonly Subnet[]): Subnet[] {
  const free: Subnet[] = [];
  let start = Math.ceil(pool.start / size) * size;
  const takeUpTo = (end: number): void => {
    for (; free.length < count && start + size <= end; start += size) free.push({ start, end: start + size });
  };
  for (const other of taken.toSorted((a, b) => a.start - b.start)) {
    if (free.length === count) return free;
    takeUpTo(Math.min(other.start, pool.end));
    if (other.end > start) start = Math.ceil(other.end / size) * size;
  }
  takeUpTo(pool.end);
  return free;
}

/** Lines of `/proc/net/route` contain addresses as hexadecimal numbers in little-endian byte order. */
const routeLine = /^\S+\t([0-9A-F]{8})\t[0-9A-F]{8}(?:\t\S+){4}\t([0-9A-F]{8})\t/;
/** Wider routes lead to the internet, such as the default route; no network would be hidden behind a new subnet. */
const widestRoute = 2 ** (addressBits - 8);

/** Networks that the host has routes to. @param table the text of `/proc/net/route` */
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
