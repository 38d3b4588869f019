/** Where the engine publishes the ports of an app. */
import type { ContainerRecord } from "../docker/container-record.ts";
import { resolveAddresses, resolvePorts, type ResolvedPort } from "../packages/settings.ts";
import type { PublishedAddresses, RunnableApp } from "./runtime.ts";

export interface PublishOptions {
  /** Where ports of regular users' containers are published that name no address. */
  readonly usersAddress: string;
}

export const anyAddress = "0.0.0.0";

/** What the manifest and the settings choose, else the default of the app's owner. */
export function publishedPorts(
  app: Pick<RunnableApp, "manifest" | "settings" | "ownerUid">,
  options: PublishOptions,
): (ResolvedPort & { readonly address: string })[] {
  const chosen = resolveAddresses(app.manifest, app.settings);
  const fallback = defaultAddress(app, options) ?? anyAddress;
  return resolvePorts(app.manifest, app.settings).map((port) => ({
    ...port,
    address: chosen.get(port.name) ?? fallback,
  }));
}

/** `undefined` for root's apps, which the engine publishes at all addresses. */
export function defaultAddress(
  { ownerUid }: Pick<RunnableApp, "ownerUid">,
  { usersAddress }: PublishOptions,
): string | undefined {
  return ownerUid === 0 ? undefined : usersAddress;
}

/** What the engine has bound for containers that run. */
export function boundAddresses(containers: readonly Pick<ContainerRecord, "ports">[]): PublishedAddresses {
  const bound = containers.flatMap(({ ports }) =>
    ports.flatMap(({ protocol, hostPort, hostAddress = "" }) =>
      hostPort === undefined ? [] : [{ protocol, port: hostPort, address: hostAddress || anyAddress }],
    ),
  );
  return addressesByPort(bound);
}

export function addressesByPort(
  ports: readonly { readonly protocol: string; readonly port: number; readonly address: string }[],
): PublishedAddresses {
  const byPort = Map.groupBy(ports, ({ port, protocol }) => `${port}/${protocol}`);
  return new Map([...byPort].map(([key, all]) => [key, [...new Set(all.map(({ address }) => address))]]));
}

/** Where this machine itself reaches what is published at an address. */
export function probedHost(address: string): string | undefined {
  return [anyAddress, "::", ""].includes(address) ? undefined : address;
}
