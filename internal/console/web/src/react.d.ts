declare module "react";
declare module "react/jsx-runtime";
declare module "react-dom";
declare module "react-dom/client";
declare module "react-at-runtime";
