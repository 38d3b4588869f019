/** Converts `maxAppsPerUser` to the spelling of the contract and the configuration file: `max_apps_per_user`. */
export function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
