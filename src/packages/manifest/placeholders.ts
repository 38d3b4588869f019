/**
 * `${…}` in the commands and environment of a manifest. There is no shell between the manifest and the
 * program, so this is how a command line reaches the app's directories, ports and settings.
 *
 * | placeholder | value |
 * |---|---|
 * | `${id}`, `${name}` | id and name of the app |
 * | `${repo}`, `${data}` | absolute paths of the checkout and of the data directory |
 * | `${volumes.NAME}` | absolute path of a volume |
 * | `${ports.NAME}` | number of a port |
 * | `${settings.KEY}` | value of a setting |
 *
 * `$${` stands for a literal `${`.
 */

/** Values of an app's placeholders, e.g. `{"repo": "/…/repo", "ports.http": "8080"}`. */
export type PlaceholderScope = Readonly<Record<string, string>>;

const placeholderForm = /\$\$\{|\$\{([^{}]*)\}/g;

/** The names between `${` and `}` in `template`, in order. */
export function placeholdersIn(template: string): string[] {
  return [...template.matchAll(placeholderForm)].flatMap((match) =>
    match[1] === undefined ? [] : [match[1]],
  );
}

/**
 * Replaces every placeholder once; values are not expanded again. Names missing in `scope` are unchanged; a manifest
 * with such a name is rejected earlier.
 */
export function expandPlaceholders(template: string, scope: PlaceholderScope): string {
  return template.replaceAll(placeholderForm, (whole: string, name: string | undefined) => {
    if (name === undefined) return "${";
    return Object.hasOwn(scope, name) ? (scope[name] ?? whole) : whole;
  });
}
