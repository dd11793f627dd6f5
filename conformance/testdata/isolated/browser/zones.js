export const ZONES = ["UTC", "Africa/Nairobi"];
