/** Whether a network interface connects this host only to its own containers or virtual machines. */
export function isInternalInterface(name: string): boolean {
  return /^(docker|br-|veth|virbr|cni|lxc|podman)/.test(name);
}
