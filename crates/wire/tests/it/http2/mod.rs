//! HTTP/2: tables of what the RFCs say, properties, and twins.

mod frames;
