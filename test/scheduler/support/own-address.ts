import { networkInterfaces } from "node:os";

/** An IPv4 address of this host that other hosts could use; undefined if there is none. */
export function ownAddress(): string | undefined {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(
      ({ family, internal, address }) => family === "IPv4" && !internal && !address.startsWith("169.254."),
    )?.address;
}
