/** Guesses from the names of an app's ports which one a browser can open, and how. */

interface NamedPort {
  readonly name: string;
  readonly protocol: string;
}

const webName = /^(https?|web|ui|www)/i;
/** Names of ports that speak another protocol than HTTP. */
const otherName =
  /^(ssh|sftp|ftp|db|database|postgres|mysql|mariadb|redis|mongo|mqtt|amqp|smtp|imap|ldap|dns)/i;
/** `https`, `web-https`, and port 443 of a service such as `proxy-443`; not the port 80 of a service `https-proxy`. */
const encryptedName = /(^|-)(https|8?443)$/i;

/** The first TCP port named for HTTP, else the first that is not named for another protocol. */
export function webPortOf<Port extends NamedPort>(ports: readonly Port[]): Port | undefined {
  const tcp = ports.filter(({ protocol }) => protocol === "tcp");
  return tcp.find(({ name }) => webName.test(name)) ?? tcp.find(({ name }) => !otherName.test(name));
}

export function schemeOf({ name }: Pick<NamedPort, "name">): "http" | "https" {
  return encryptedName.test(name) ? "https" : "http";
}
