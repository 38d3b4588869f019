/** Addresses of the host by port and protocol, such as `8080/tcp`. */
export type PublishedAddresses = ReadonlyMap<string, readonly string[]>;
