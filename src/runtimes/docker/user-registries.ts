/** The registries from which apps of regular users get images. */

/**
 * The default: well-known public registries. The engine does not limit how much it reads from a registry, and a
 * registry that a user controls could send it anything, whatever svc has read before.
 */
export const wellKnownRegistries: readonly string[] = [
  "docker.io",
  "ghcr.io",
  "quay.io",
  "registry.gitlab.com",
  "codeberg.org",
  "lscr.io",
  "mcr.microsoft.com",
  "public.ecr.aws",
  "gcr.io",
  "*.gcr.io",
  "*.pkg.dev",
  "registry.k8s.io",
  "registry.access.redhat.com",
  "docker.elastic.co",
  "nvcr.io",
  "cgr.dev",
];

/**
 * Whether a list includes a registry.
 * @param list hosts with their ports; `*` includes all, `*.pkg.dev` all hosts below `pkg.dev`
 * @param host as in image names
 */
export function includesRegistry(list: readonly string[], host: string): boolean {
  return list.some((entry) =>
    entry.startsWith("*.") ? host.endsWith(entry.slice(1)) : entry === "*" || entry === host,
  );
}
