join-title = Bạn sắp vào hàng chờ
join-lead = Khách được vào theo thứ tự đến trước.
join-button = Vào hàng chờ
scheduled-title = Chưa mở cửa
scheduled-lead = Chỗ của bạn được giữ. Khách được vào theo thứ tự từ lúc mở cửa.
draw-title = Chưa bốc thăm
draw-lead = Khi mở cửa, việc bốc thăm cho mỗi khách đã tham gia một chỗ ngẫu nhiên. Khách tham gia sau đứng phía sau.
drawn-lead = Việc bốc thăm đã cho mỗi khách tham gia trước giờ mở cửa một chỗ ngẫu nhiên. Khách được vào theo thứ tự này.
late-lead = Việc bốc thăm đã xong. Khách tham gia lúc này đứng phía sau, theo thứ tự đến.
waiting-title = Bạn đang trong hàng chờ
waiting-lead = Khách được vào theo thứ tự đến trước.
almost-title = Sắp đến lượt
almost-lead = Bạn là người tiếp theo. Hãy giữ trang này mở.
paused-title = Hàng chờ đang tạm dừng
paused-lead = Ban tổ chức tạm ngừng cho vào. Bạn vẫn giữ chỗ của mình.
admitted-title = Đến lượt bạn
admitted-lead = Hãy vào trước khi hết thời gian.
admitted-button = Vào
full-title = Hàng chờ đã đầy
full-lead = Vui lòng thử lại sau giây lát.
expired-title = Chỗ của bạn đã hết hạn
expired-lead = Trang này mất liên lạc quá lâu, hoặc lượt truy cập của bạn đã kết thúc.
left-title = Bạn đã rời hàng chờ
left-lead = Chỗ của bạn đã chuyển cho người tiếp theo.
over-title = Hàng chờ đã đóng
over-lead = Ban tổ chức đã đóng hàng chờ. Không ai được vào nữa.
lost-title = Mất kết nối
lost-lead = Kết nối bị gián đoạn. Bạn vẫn giữ chỗ; trang này tự thử lại.
offer-title = Nhận chỗ của bạn trên thiết bị này
offer-lead = Liên kết này chuyển một chỗ trong hàng sang thiết bị này, chỉ một lần. Trên thiết bị đang giữ, chỗ đó sẽ kết thúc.
offer-button = Nhận chỗ
moved-title = Chỗ của bạn đã được chuyển
moved-lead = Một thiết bị khác đã nhận chỗ bằng liên kết và đang tiếp tục. Trang này và liên kết của nó không còn dẫn tới chỗ đó.
cookies-title = Vui lòng cho phép cookie
cookies-lead = Chỗ của bạn được lưu trong cookie, và trình duyệt đã không lưu. Hãy cho phép cookie của trang này rồi vào hàng lại.
rejoin-button = Vào hàng lại
work-busy = Trình duyệt của bạn đang giải một bài nhỏ để ngăn bot.
work-wait = Một bài nhỏ ngăn bot. Nếu không có JavaScript, hãy đợi { $count } giây rồi nhấn nút.
ahead = { $count ->
    [0] Không có ai trước bạn
   *[other] { $count } người trước bạn
}
entrants = { $count ->
   *[other] { $count } người tham gia bốc thăm
}
draw-link = Kiểm tra kết quả bốc thăm
receipt-link = Lưu biên nhận
wait-label = Thời gian chờ dự kiến
wait-soon = chưa đến một phút
wait-minutes = { $to ->
    [1] khoảng { $to } phút
   *[other] { $from }–{ $to } phút
}
wait-hours = { $to ->
    [1] khoảng { $to } giờ
   *[other] { $from }–{ $to } giờ
}
wait-unknown = chưa biết
number-label = Số của bạn
progress-label = Tiến độ từ khi vào hàng
opens-label = Mở cửa sau
ends-label = Thời gian còn lại
updated-label = Cập nhật lần cuối
kept = Bạn vẫn giữ chỗ nếu tải lại hoặc đóng trang này.
check-button = Kiểm tra ngay
auto-button = Tự động cập nhật
leave-button = Rời hàng chờ
move-title = Tiếp tục trên thiết bị khác
move-lead = Mở liên kết này trên thiết bị kia và nhận chỗ ở đó. Liên kết chỉ dùng được một lần: đừng cho ai xem.
soldout-title = Đã hết
soldout-lead = Tất cả đã được nhận.
early-title = Chưa mở
early-lead = Bạn có thể nhận từ lúc mở. Trang này tự mở.
claim-title = Bạn có thể nhận
claim-lead = Hãy nhận phần của bạn ngay. Mỗi người một phần.
claim-button = Nhận ngay
claimed-title = Phần này là của bạn
claimed-lead = Hãy ghi lại mã này. Trang này sẽ hiện lại mã trong trình duyệt này.
ended-title = Đã kết thúc
ended-lead = Không còn nhận được gì ở đây nữa.
serial-label = Số thứ tự của bạn
code-label = Mã của bạn
remaining = { $count ->
    [0] không còn
   *[other] còn { $count }
}
language-label = Ngôn ngữ
