/** Authentication challenges of registries (RFC 9110, section 11; the distribution project's token specification). */

export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

export type RegistryChallenge =
  | { readonly scheme: "basic" }
  | { readonly scheme: "bearer"; readonly realm: string; readonly service: string; readonly scope: string };

/** Returns the first challenge of a supported scheme; `undefined` without one. */
export function parseChallenge(header: string): RegistryChallenge | undefined {
  for (const [, scheme = "", rest = ""] of header.matchAll(
    /(?:^|,\s*)([A-Za-z]+)(?:\s+((?:[a-z_]+\s*=\s*(?:"[^"]*"|[^\s,"]+)(?:\s*,\s*(?=[a-z_]+\s*=))?)*))?/gi,
  )) {
    const parameters = Object.fromEntries(
      [...rest.matchAll(/([a-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))/gi)].map(([, name = "", quoted, bare]) => [
        name.toLowerCase(),
        quoted ?? bare ?? "",
      ]),
    );
    if (scheme.toLowerCase() === "basic") return { scheme: "basic" };
    const { realm, service = "", scope = "" } = parameters;
    if (scheme.toLowerCase() === "bearer" && realm !== undefined)
      return { scheme: "bearer", realm, service, scope };
  }
  return undefined;
}

export function basicAuthorization({ username, password }: RegistryCredentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}
